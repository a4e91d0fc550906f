"""MiniCPM's models of images around hybrid language models."""

from ..architecture import MULTIMODAL

ARCHITECTURES = (MULTIMODAL.relative("minicpm_ocr", "minicpmv4_6", "minicpmv4_7", "jev"),)
