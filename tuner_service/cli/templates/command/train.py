"""A training that has never heard of a search: it takes options, and prints how it goes.

Any program of any language may stand in its place, as ``trial.command`` in experiment.yaml.
"""

import argparse


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=30)
    chosen = parser.parse_args()
    # Gradient descent in a long and narrow valley, in place of your own training.
    x, y, speed_x, speed_y = 4.0, 1.0, 0.0, 0.0
    for step in range(1, chosen.steps + 1):
        speed_x = chosen.momentum * speed_x - chosen.lr * 0.2 * x
        speed_y = chosen.momentum * speed_y - chosen.lr * 4.0 * y
        x, y = x + speed_x, y + speed_y
        loss = 0.1 * x * x + 2.0 * y * y
        print(f"step={step} loss={loss:.6g}", flush=True)


if __name__ == "__main__":
    main()
