"""One step, from the scheduler's decision to what each sequence has got."""
