"""The one load generator: streams with paced readers, seeded."""
