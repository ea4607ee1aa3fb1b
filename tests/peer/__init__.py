"""llamaherd beside llama-server: the same command line, the same requests, the same answers."""
