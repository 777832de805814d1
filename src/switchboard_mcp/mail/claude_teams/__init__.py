"""The bridge to Claude Code's agent teams, for `mail.claudeTeams`: their members are agents, and agents are in the
teams' member lists. Start at `team_bridge`.
"""
