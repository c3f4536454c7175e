"""Environment variables of HCCL and the NPU software, as data."""
