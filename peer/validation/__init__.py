"""`shoal validate`: a real mesh on this machine whose peers are killed, frozen and cut off while it answers.

scenarios, questions, measures, conditions and advice are pure; mesh, children, relay and injection are edges; runner,
soak and cost put them together; results and report keep and show what came out.
"""
