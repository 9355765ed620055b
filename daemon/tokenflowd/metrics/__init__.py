"""What Prometheus sees: one table, from which collector, documentation, dashboard and alert rules are made."""
