"""An order in four steps: the program of the animation in README.md."""
