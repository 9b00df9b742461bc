"""The command line: a small file a group of commands, on nothing but the public API."""
