"""`python -m toril` is the command `toril`."""

from toril.cli.main import main

if __name__ == "__main__":
    main()
