"""The host's GPUs, as NVML tells of them."""
