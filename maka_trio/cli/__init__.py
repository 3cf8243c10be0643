"""The `maka-trio` command; a file a subcommand."""
