"""From a conversation to the text a model reads: templates, their limits, and what they can express."""
