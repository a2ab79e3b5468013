"""``python -m mnemic`` is the command ``mnemic``."""

from mnemic.cli import main

if __name__ == "__main__":
    main()
