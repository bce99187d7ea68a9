"""Rotations in language models: steps of fine-tuning, and peft's own tests."""
