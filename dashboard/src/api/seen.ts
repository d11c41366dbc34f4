// Up to which event a page has everything. A read names it, so that whoever was told the same can be given one answer.

const MOST_PATHS = 200;

export class Seen {
  /** Called where an answer came that may lack what no event will tell. */
  behind: () => void = () => {};
  private begun = "";
  private told = "";
  private changed = "";
  private readonly given = new Map<string, string>();

  /** An event of the stream. */
  event(id: string): void {
    this.told = id;
  }

  /** A stream begins: it tells what happens after the event `id`. What was read before that, or is being read, may lack it. */
  begin(id: string): void {
    this.begun = this.told = id;
    for (const had of this.given.values()) if (isBefore(had, id)) return this.fallBehind();
  }

  /** The stream has ended: what happens from now on is not told. */
  ended(): void {
    this.told = "";
  }

  /** An answer has everything up to the event `id`; `path` is null where it answers a change of our own. */
  answered(path: string | null, id: string): void {
    if (path === null) {
      this.changed = later(this.changed, id);
      return;
    }
    if (this.given.size >= MOST_PATHS) this.given.clear();
    this.given.set(path, id);
    if (this.begun && isBefore(id, this.begun)) this.fallBehind();
  }

  /**
   * What an answer to `path` must have: all that was told and done, and what the last one had, or a plot would go back.
   * Empty where only an answer made for this read will do.
   */
  eventFor(path: string): string {
    return this.told && later(later(this.told, this.changed), this.given.get(path) ?? "");
  }

  /** Once for each beginning: everything is read again then, also what is being read. */
  private fallBehind(): void {
    this.begun = "";
    this.behind();
  }
}

/** The later of two ids of one database; where they are of two, or the second is none, the first. */
function later(one: string, other: string): string {
  if (!one) return other;
  const [sequence, lineage] = split(one);
  const [otherSequence, otherLineage] = split(other);
  return lineage === otherLineage && otherSequence > sequence ? other : one;
}

/** Whether what has everything up to `one` may lack something of `other`; of another database it does. */
function isBefore(one: string, other: string): boolean {
  const [sequence, lineage] = split(one);
  const [otherSequence, otherLineage] = split(other);
  return lineage !== otherLineage || sequence < otherSequence;
}

function split(id: string): [number, string] {
  const dash = id.indexOf("-");
  return [Number(id.slice(0, Math.max(0, dash))), id.slice(dash + 1)];
}
