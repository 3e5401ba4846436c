"""Everything on a pretended accelerator."""
