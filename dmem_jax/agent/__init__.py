"""Memory for agents that speak: texts in, texts out."""
