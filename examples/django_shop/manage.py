"""A shop on Django: jobs pack the orders, and tasks of django-tasks write the receipts.

python manage.py migrate
python manage.py runserver          the site
python manage.py toril run          the worker, in another terminal
curl -X POST localhost:8000/orders/17/
python manage.py toril queues       every command of toril, on the store in the settings
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)
