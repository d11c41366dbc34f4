import time

import trials

with trials.init(defaults={"x": 0.0, "y": 0.0}) as trial:
    x, y = trial.parameters["x"], trial.parameters["y"]
    begin = trial.restore(default={"step": 0})["step"] + 1  # after a crash: where it was
    for step in range(begin, 21):
        time.sleep(0.1)  # stands for the training
        trial.report(step=step, loss=(x - 1) ** 2 + (y + 2) ** 2 + 1 / step)
        trial.save_checkpoint({"step": step}, step=step)
    trial.report_final(loss=(x - 1) ** 2 + (y + 2) ** 2)
