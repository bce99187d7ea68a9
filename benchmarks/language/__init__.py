"""A byte-level language model on Python's own library sources: AdamW, Muon, SOAP and GivensAdam."""
