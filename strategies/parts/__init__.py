"""The letters of the update rule, a small class each, and the flat tensors that they work on."""
