"""Configuration files of training frameworks: what they set is what a program does."""
