"""``python -m rbprune`` is ``rbprune``."""

from rbprune.cli import main

if __name__ == "__main__":
    main()
