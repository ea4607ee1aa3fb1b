"""The command `llamaherd`: one module per subcommand."""
