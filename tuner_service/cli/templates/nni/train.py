"""A script written for NNI, which runs unchanged: ``import nni`` finds a module with NNI's calls."""

import random

import nni

EPOCHS = 15


def main() -> None:
    chosen = {"lr": 0.1, "momentum": 0.5, "batch_size": 16, **nni.get_next_parameter()}
    draws = random.Random(nni.get_sequence_id())  # noqa: S311  # nobody is to be kept from guessing it
    # A line that is fitted to noisy points, in place of your own training.
    slope, speed, accuracy = 0.0, 0.0, 0.0
    for _ in range(EPOCHS):
        gradient = 0.0
        for _ in range(chosen["batch_size"]):
            x = draws.uniform(-1, 1)
            gradient += (slope * x - (2 * x + draws.gauss(0, 0.1))) * x / chosen["batch_size"]
        speed = chosen["momentum"] * speed - chosen["lr"] * gradient
        slope += speed
        accuracy = max(0.0, 1 - abs(slope - 2) / 2)
        nni.report_intermediate_result(accuracy)
    nni.report_final_result(accuracy)


if __name__ == "__main__":
    main()
