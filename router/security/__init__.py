"""Who may do what: API keys, scopes, the access table, browsers' origins. Pure but for reading and making key files."""
