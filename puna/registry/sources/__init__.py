"""Where models come from: today Python packages, through pip."""
