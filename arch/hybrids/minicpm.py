"""MiniCPM's models of images around hybrid language models."""

from ..architecture import Architecture, ConfigKeys

MINICPM_OCR = Architecture(
    types=("minicpm_ocr", "minicpmv4_6", "minicpmv4_7", "jev"),
    config=ConfigKeys(text="text_config"),
)

ARCHITECTURES = (MINICPM_OCR,)
