"""What a reader experienced: TTFT, stalls, effective throughput, QoE, goodput. Definitions in docs/metrics.md."""
