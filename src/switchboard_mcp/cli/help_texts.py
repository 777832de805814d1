"""The texts of `switchboard --help` and `switchboard mail --help`."""

from __future__ import annotations

OVERVIEW = """\
Switchboard is one MCP server in front of all your MCP servers. A host sees one tool per server, a suite, and
opens a suite when it needs one of its tools.

usage: switchboard [COMMAND] [OPTIONS]

set up
  init                  move the servers of all your hosts behind Switchboard; --dry-run only shows the plan
  revert                undo `init`, byte for byte
  add NAME -- CMD       add a server; or --url URL
  remove NAME           remove a server
  enable NAME           switch a server on again
  disable NAME          switch a server off; its entry stays
  import FILE           copy the servers of a file, leaving the file unchanged
  secret set|list|…     values of ${VAR} in entries, in a private file or the system keyring
  login CHILD           log in to a remote child (OAuth)
  logout CHILD          delete the tokens of that login
  doctor                check everything, and say how to fix it

use from a shell
  list                  list the suites; starts nothing
  introspect SUITE      show the subtools of a suite
  call SUITE SUBTOOL    call a subtool
  find WORDS            find the subtools that match a sentence
  tokens                measure how many tokens the suites save
  program check|run|…   check, run and keep programs that call subtools of several suites
  ask SENTENCE          let a model find and call the subtools for a sentence
  wrap CHILD            let a child take requests in plain sentences
  unwrap CHILD          undo `wrap`, byte for byte
  wrapper CHILD         serve a wrapped child; this is what its file runs

serve and look
  (no command), serve   serve over stdio; this is what a host runs
  serve --http [[HOST:]PORT]
                        serve over HTTP, for any number of hosts
  token new|list|revoke named tokens for clients of the HTTP server
  status                show the health of the children of a running server; starts nothing
  dashboard             open its dashboard in a browser, or print the link
  broker status|restart|stop
                        the process that the stdio sessions of a workspace share
  --dry-run             connect to every child, list its subtools, exit

decide what may run
  trust                 allow what the config of this folder runs before you ask for anything
  gate check|test       show what the rules of the config decide about a call
  approvals             list and answer the calls that wait for your decision
  sandbox               show what each child may do here, or learn the smallest sandbox: show, learn CHILD
  lock                  record what every child offers; --check, --accept CHILD
  approve CHILD         show what a child really runs, and allow it in governed mode
  audit verify|tail|…   verify, read or follow the audit record
  evidence              write report, metrics and stamp; identical for identical inputs

let agents talk
  mail COMMAND          messages between agents; `mail --help` lists the commands
  terminal NAME -- CMD  run a program in a terminal that other agents can send messages to
  bus status|tail|…     events for other programs over Redis: check, read or publish them

for your shell and editor
  completions SHELL     print completions for bash, zsh or fish
  schema [NAME]         print the JSON Schema of a file, for editors
  help COMMAND          show the help of a command

options of all commands
  --workspace DIR       folder with the config and the children (default: here)
  --config FILE         config file (default: switchboard.config.json or .toml in the workspace)
  --profile NAME        see what clients of this profile see (`profiles` in the config)
  --json                print JSON
  --log-level LEVEL     debug, info, warning or error, to stderr
  --log-format FORMAT   text or json
  --version             show the version

exit codes: 0 success, 1 failure, 2 usage or config error

example:
  $ switchboard list
  $ switchboard introspect github --query "open an issue"
  $ switchboard call github create_issue title="It works" labels='["demo"]'

in a host's own config:
  { "mcpServers": { "switchboard": { "command": "switchboard", "args": ["--workspace", "DIR"] } } }
"""

MAIL_OVERVIEW = """\
Messages between agents, in .switchboard/: the same ones that hosts send with the mail tools.

usage: switchboard mail COMMAND [OPTIONS]

  send TO [TEXT]        send a message to an agent, a role, a team or everyone; returns when it is stored
  inbox                 list your unread messages; consumes nothing
  read [ID]             show one message in full; consumes nothing
  claim                 take the next messages, to work on them
  ack [ID] [OUTCOME]    settle a message: done, failed or rejected; --result replies to its sender
  progress [ID] [TEXT]  keep a claimed message, with news or a question (--ask) for its sender
  thread ID             show a conversation
  wait                  wait for mail
  receipts [ID …]       show what became of messages you sent
  search WORDS          find messages you received, or sent (--sent)
  agents                list the agents; `agents add NAME`, `agents role NAME ROLE`,
                        `agents rename OLD NEW`, `agents remove NAME`
  teams                 list the teams; `teams create TEAM MEMBER …`
  workflow              list the running workflows; `workflow start|complete|skip|stop`
  dead                  list dead letters, with the reason; `dead requeue ID` puts one back
  verify                read every message, and compare its checksum and the counts
  export                write all messages as lines of JSON
  backup FILE           copy the database
  restore FILE          put a copy in the place of the database
  salvage               read what can be read of a damaged database
  prune --older 30d     delete messages settled that long ago, with their receipts; --dry-run
  hook                  tell a host at the end of its turn what is unread (see docs/messaging.md)

  --as NAME             which agent you are (default: SWITCHBOARD_AGENT)
  --json                print JSON
  --workspace DIR       folder with .switchboard (default: SWITCHBOARD_WORKSPACE, else here or above)

example:
  $ switchboard mail agents add ada
  $ export SWITCHBOARD_AGENT=ada
  $ switchboard mail send coder "Please write the parser" --action delegate_task
  $ switchboard mail receipts
"""
