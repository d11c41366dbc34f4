"""Named shares of the devices, which people make, change and delete."""

from __future__ import annotations

from tuner_service.dispatcher.commands import QuotaGroupDeleted, QuotaGroupSet
from tuner_service.dispatcher.limits import QUOTA_GROUPS_LIMIT
from tuner_service.dispatcher.step import Step
from tuner_service.domain.errors import AlreadyThereError, ConflictError, NotFoundError
from tuner_service.domain.resources import DEFAULT_GROUP

USERS_NAMED = 5  # of the experiments that keep a group from being deleted


def put(step: Step, command: QuotaGroupSet) -> None:
    """Holds for the trials to come: what a group holds beyond it is given back as its trials end."""
    groups, group = step.state.groups, command.group
    if command.must_be_new and (group.name in groups or group.name == DEFAULT_GROUP):
        raise AlreadyThereError(f"there is a quota group {group.name!r} already; it stays as it is", ("change",))
    if group.name not in groups and len(groups) >= QUOTA_GROUPS_LIMIT:
        raise ConflictError(f"there are {QUOTA_GROUPS_LIMIT} quota groups, which is the limit; delete some first")
    groups[group.name] = group
    step.changes.quota_groups[group.name] = group
    step.state.placement_is_due = True


def delete(step: Step, command: QuotaGroupDeleted) -> None:
    """Refused while experiments that have not ended, or were set aside, draw from it. Of the default group only its
    quota goes."""
    name = command.name
    if name not in step.state.groups and name == DEFAULT_GROUP:
        raise NotFoundError("quota of the group", name, "the group itself is always there")
    if name not in step.state.groups:
        raise NotFoundError("quota group", name)
    experiments = [xs.experiment for xs in step.all()]
    users = [e.id for e in experiments if e.spec.quota_group == name and not e.status.has_ended]
    users += [experiment_id for experiment_id, aside in step.state.set_aside.items() if aside.group == name]
    if users and name != DEFAULT_GROUP:
        named = ", ".join(users[:USERS_NAMED]) + (", …" if len(users) > USERS_NAMED else "")
        raise ConflictError(f"quota group {name!r} is in use by {named}; stop them first, or change it", ("change",))
    del step.state.groups[name]
    step.changes.quota_groups[name] = None
    step.state.placement_is_due = True
