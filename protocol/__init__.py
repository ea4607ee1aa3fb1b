"""The wire contract between the router and its children. SPEC.md is the authority."""
