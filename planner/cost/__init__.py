"""What a plan costs: the evaluator, objectives, standbys and the simulator that checks it."""
