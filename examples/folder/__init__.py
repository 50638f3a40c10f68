"""Folder: fork and join, one child for each file."""
