"""Side-by-side benchmarks of llamaherd and llama-server: `make bench`, never part of `make test`."""
