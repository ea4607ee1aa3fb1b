"""What a model wrote, taken apart: content, reasoning and tool calls, as they stream."""
