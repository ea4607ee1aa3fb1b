"""The process that loads one model and runs its requests in one batch."""
