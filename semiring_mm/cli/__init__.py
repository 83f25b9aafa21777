"""The command line: shortest and other best paths of a graph in a file."""

from .entry import main

__all__ = ["main"]
