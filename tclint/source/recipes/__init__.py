"""Configuration files of training frameworks, run as the programs that they set up."""
