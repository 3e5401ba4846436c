"""Measurements that can be repeated: ratios of things run side by side, in one process, interleaved."""
