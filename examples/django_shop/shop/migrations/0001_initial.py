"""The first tables."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []  # type: ignore[var-annotated] # noqa: RUF012 - so Django declares it
    operations = [  # noqa: RUF012 - as above
        migrations.CreateModel(
            "Order",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("number", models.IntegerField(unique=True)),
                ("packed", models.BooleanField(default=False)),
            ],
        )
    ]
