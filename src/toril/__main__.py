"""Runs the command `toril` for `python -m toril`."""

from toril.cli.main import main

if __name__ == "__main__":
    main()
