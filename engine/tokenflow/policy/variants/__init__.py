"""The policies behind one interface: each module has `decide(view, tunables) -> Plan`. See docs/policy.md."""
