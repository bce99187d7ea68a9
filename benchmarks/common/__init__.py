"""What every benchmark shares: timing, rows, bars and pages."""
