"""What the gateway counts: Prometheus metrics from the owner's tables, and the times of single requests."""
