"""What the operator asked for: options, presets, model sources, and what each model will need.

Pure but for reading files. Nothing here knows of HTTP, processes or the event loop.
"""
