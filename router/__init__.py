"""The gateway: HTTP, model scheduling, supervision of the children."""
