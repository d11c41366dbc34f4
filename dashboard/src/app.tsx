// The frame of every page: where one is, whether the service answers, and what was just done.
import { useEffect } from "preact/hooks";
import { read, signedOut } from "./api/client";
import { cameBackAt, connection, lostSince, signIns } from "./api/live";
import { useResource } from "./api/resource";
import { caller, findCaller, may, signOut } from "./api/session";
import { ClusterPage } from "./pages/cluster";
import { ComparePage } from "./pages/compare";
import { ExperimentPage } from "./pages/experiment";
import { ExperimentsPage } from "./pages/experiments";
import { LoginPage } from "./pages/login";
import { NewPage } from "./pages/new";
import { TrialPage } from "./pages/trial";
import { act } from "./parts/actions";
import { Empty, To } from "./parts/controls";
import { Questions } from "./parts/dialog";
import { PersonIcon } from "./parts/icons";
import { helpShown, Keys } from "./parts/keys";
import { Menu } from "./parts/menu";
import { Notices, say } from "./parts/notices";
import { Unwell } from "./parts/unwell";
import { route } from "./state/address";
import { duration } from "./state/format";
import { now } from "./state/now";
import { setTheme, type Theme, theme } from "./state/theme";

export function App() {
  const signingIn = signedOut.value || route.value.page === "login";
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById("content")?.focus()}>
        To the content
      </button>
      <Header signedIn={!signingIn} />
      {!signingIn && <Lost />}
      {!signingIn && <Unwell />}
      <main id="content" tabIndex={-1}>
        {signingIn ? <LoginPage /> : <Page />}
      </main>
      <Notices />
      <Questions />
      <Keys />
    </>
  );
}

function Page() {
  const found = route.value;
  switch (found.page) {
    case "experiments":
      return <ExperimentsPage />;
    case "experiment":
      return <ExperimentPage key={found.id} id={found.id} />;
    case "trial":
      return <TrialPage key={`${found.id}/${found.number}`} id={found.id} number={found.number} />;
    case "compare":
      return <ComparePage />;
    case "cluster":
      return <ClusterPage />;
    case "new":
      return <NewPage />;
    default:
      return (
        <Empty title="There is no such page">
          The <To to="/">experiments</To> are where everything begins.
        </Empty>
      );
  }
}

const THEMES: readonly [Theme, string][] = [
  ["system", "as the system"],
  ["light", "light"],
  ["dark", "dark"],
];

function Header({ signedIn }: { signedIn: boolean }) {
  const here = route.value.page;
  const link = (to: string, words: string, pages: readonly string[]) => (
    <To to={to} aria-current={pages.includes(here) ? "page" : undefined}>
      {words}
    </To>
  );
  const next = THEMES[(THEMES.findIndex(([name]) => name === theme.value) + 1) % THEMES.length];
  return (
    <header class="top">
      <To to="/" class="brand" aria-label="Tuner Service: experiments">
        <Logo />
        <span>Tuner</span>
      </To>
      {signedIn && (
        <nav aria-label="Pages">
          {link("/", "Experiments", ["experiments", "experiment", "trial", "compare"])}
          {link("/cluster", "Cluster", ["cluster"])}
          {may("create_experiment") && link("/new", "New", ["new"])}
        </nav>
      )}
      <div class="top-end">
        {signedIn && <ConnectionDot />}
        {signedIn && <Account />}
        <button
          type="button"
          class="icon"
          title={`Colours: ${theme.value}; change to ${next[1]}`}
          aria-label={`Colours ${theme.value}, change to ${next[1]}`}
          onClick={() => setTheme(next[0])}
        >
          <span aria-hidden="true">{theme.value === "dark" ? "☾" : theme.value === "light" ? "☀" : "◐"}</span>
        </button>
        <button
          type="button"
          class="icon keys-button"
          title="Keys (?)"
          aria-label="Keys"
          onClick={() => {
            helpShown.value = true;
          }}
        >
          ?
        </button>
      </div>
    </header>
  );
}

const ROLES: Record<string, string> = {
  admin: "may do everything",
  operator: "may change experiments",
  read_only: "may only read",
};

/** Who is signed in, what that may do, and the way out. */
function Account() {
  // In another tab somebody else may have signed in; and of a service that was away it could not be learnt.
  useEffect(() => void findCaller(), [signIns.value, cameBackAt.value]);
  const who = caller.value;
  if (!who) return null;
  return (
    <>
      {who.role === "read_only" && <span class="tag">read only</span>}
      <Menu label={`${who.name}: ${ROLES[who.role] ?? who.role}`} icon={<PersonIcon />}>
        <p class="menu-note">
          <strong>{who.name}</strong>
          <br />
          {ROLES[who.role] ?? who.role}
        </p>
        {who.session && (
          <button type="button" role="menuitem" onClick={() => void act(signOut, "Signed out")}>
            Sign out
          </button>
        )}
      </Menu>
    </>
  );
}

function Logo() {
  return (
    <svg width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" class="logo-ground" />
      <path d="M6 22 L12 13 L17 17 L26 8" class="logo-line" />
      <circle cx="26" cy="8" r="3" class="logo-best" />
    </svg>
  );
}

function ConnectionDot() {
  const version = useResource(["version"], (signal) => read<{ version: string }>("/version", signal), []);
  const state = connection.value;
  const words = { live: "live", connecting: "connecting", lost: "not connected", polling: "every 2 s" }[
    state
  ];
  return (
    <span
      class={`connection ${state}`}
      title={`Tuner Service ${version.data.value?.version ?? ""}: ${words}`}
    >
      <span aria-hidden="true" class="dot" />
      {words}
    </span>
  );
}

const PATIENCE_MS = 1_500; // a stream that is back sooner was no trouble for anybody

/** Says that the service is away, and that it is back: nobody has to read the page anew. */
function Lost() {
  const since = lostSince.value;
  const back = cameBackAt.value;
  useEffect(() => {
    if (back) say("The service is back; everything here is as it is now");
  }, [back]);
  if (connection.value !== "lost" || since === null || now.value - since < PATIENCE_MS) return null;
  return (
    <div class="away" role="alert">
      <strong>The service does not answer</strong>
      {/* Or a screen reader would say all of this anew each second. */}
      <span aria-hidden="true"> for {duration((now.value - since) / 1_000)}</span>. What you see is as it was
      then; running trials go on without it. The page goes on by itself as soon as it is back.
    </div>
  );
}
