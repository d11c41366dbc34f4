import trials

with trials.init(defaults={"x": 0.0, "y": 0.0}) as trial:
    x, y = trial.parameters["x"], trial.parameters["y"]
    state = trial.restore(default={"step": 0})  # after a crash: where it was
    for step in range(state["step"] + 1, 21):
        loss = (x - 1) ** 2 + (y + 2) ** 2 + 1 / step
        trial.report(step=step, loss=loss)
        trial.save_checkpoint({"step": step}, step=step)
        if trial.should_stop():
            break
    else:
        trial.report_final(loss=loss)
