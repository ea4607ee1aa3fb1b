"""Decides which model is resident and who waits: pure, no I/O, no clock."""
